"""The explanations that a diagnosis compared: predicted and measured values, as text and for a page."""
