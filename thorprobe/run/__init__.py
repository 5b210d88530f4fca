# SPDX-License-Identifier: Apache-2.0
"""Who answers: a GPU through a worker process, a model of a device, or a recorded run."""
