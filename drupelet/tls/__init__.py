"""Certificates, TLS contexts, and files with secrets."""
