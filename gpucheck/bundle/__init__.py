"""The bundle: everything that the plans of chosen groups install, in one signed folder for hosts without a network."""
