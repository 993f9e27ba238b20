"""What a trained network is worth: one file per evaluator, each for any ``nn.Module`` and any part of a data set."""
