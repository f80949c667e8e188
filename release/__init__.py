"""Build the files of a release: the same bytes again for the same commit. Run by ``make release``."""
