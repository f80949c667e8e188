"""The container images: what each promises, how it is built, and how it proves itself from the inside."""
