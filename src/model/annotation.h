/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The value of an annotation, or NULL without one; it belongs to the annotations. */
typedef const char *(*annotation_value)(const void *annotations, const char *key);
