"""The noisy spiral of the paper: many seeds at once, without mixup, with manifold mixup and with multi-mix."""
