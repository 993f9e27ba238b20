"""Freed memory is kept: a process that asked for it has no page faults when it asks for the same memory again."""

import json
import subprocess
import sys

import pytest

CODE = """
import json, resource, torch
import multimix as mm

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(5):
        torch.zeros(16, 2**20)  # 64 MB: more than the C library ever keeps by itself
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

kept = mm.keep_memory() if KEEP else False
faults()
first = faults()
mm.release_memory()
print(json.dumps([kept, first, faults()]))
"""


def measured(keep):
    done = subprocess.run([sys.executable, "-c", f"KEEP = {keep}" + CODE], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="glibc only")
def test_memory_is_kept_when_asked_for_and_handed_back_when_asked_for():
    kept, again, released = measured(True)
    if not kept:
        pytest.skip("another C library than glibc")
    _, fresh, _ = measured(False)
    assert again * 4 < released, "after release_memory the pages have to be had anew, once"
    assert again * 20 < fresh, "without it each time"
