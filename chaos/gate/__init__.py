"""Gates: suites of experiments with objectives, repeated until their outcome is decided."""
