"""Reports of finished runs: one self-contained page per study, with its figures as files beside it."""
