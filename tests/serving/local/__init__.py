"""Tests of the page that explains XLNet. Begin with test_browser.py, which uses it as people do."""
