"""Tests of the page that explains XLNet."""
