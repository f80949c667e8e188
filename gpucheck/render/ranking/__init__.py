"""The explanations that a diagnosis compared: predicted beside measured, as text and for a page."""
