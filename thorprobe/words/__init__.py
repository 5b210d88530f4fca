# SPDX-License-Identifier: Apache-2.0
"""The words of single answers: results and summary of each command that `record` does not hold."""
