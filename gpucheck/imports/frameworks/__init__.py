"""Reports that machine learning frameworks print of the machine they run on."""
