"""Co-Mixup: many samples mixed jointly, by its own compiled solver."""
