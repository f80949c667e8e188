"""Training and copies by a framework, as the steps of training ran them."""
