"""Findings in every form: grouped, as text, as blocks of a page, with the commands of their fixes."""
