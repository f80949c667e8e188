"""The embedded lab: two bare hosts in containers and a signed package mirror, for provisioning without hardware."""
