"""What several commands share: options, output, progress, messages of errors."""
