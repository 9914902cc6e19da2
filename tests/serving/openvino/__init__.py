"""Models in OpenVINO's format. Begin with test_conversion.py: graphs give the numbers of the model."""
