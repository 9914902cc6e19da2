"""Tests of tfrecord_builders/corpus/. Begin with test_corpus.py."""
