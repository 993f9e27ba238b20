"""Methods × K × seeds in one go, comparable at equal steps, equal samples and equal compute."""
