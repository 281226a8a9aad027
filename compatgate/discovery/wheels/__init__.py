"""Measure wheels on package indexes, at URLs and in files, where they are and in little memory."""
