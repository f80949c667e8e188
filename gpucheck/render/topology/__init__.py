"""A topology as nested boxes, and their drawing."""
