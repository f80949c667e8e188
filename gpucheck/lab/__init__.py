"""Manage the embedded lab: two hosts in containers and a signed package mirror, for provisioning without hardware."""
