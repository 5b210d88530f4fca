# SPDX-License-Identifier: Apache-2.0
"""Holds each gate against the limits: the rows that it lets through or keeps out."""
