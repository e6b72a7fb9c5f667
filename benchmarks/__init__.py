"""Measurements that are too long for the tests. Each writes its numbers as JSON and draws its picture from that."""
