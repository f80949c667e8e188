"""A measuring run: the parent requests steps, a child process with a deadline runs them."""
