"""What nvidia-smi prints."""
