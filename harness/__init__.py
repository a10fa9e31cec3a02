"""GUEST: exactly what is copied into the guest. Imports nothing of labkit."""
