"""Choosing a replica and deciding what may be tried again. Pure: values in, decisions out."""
