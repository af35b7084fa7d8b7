/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The version of a kube-scheduler by the tag of its image, and whether it suits the API server.
 * Kubernetes supports one of the same minor version and one that is a minor version older. */

#include <stdbool.h>

#define SCHEDULER_IMAGE_CONTAINER "kube-scheduler" /* in a pod of aliquot-scheduler */
#define IMAGE_TAG_MAX 64

/* The tag of "registry:5000/kube-scheduler:v1.36.3@sha256:..."; "" without one. */
void image_tag(const char *image, char ret[static IMAGE_TAG_MAX]);

/* Minor versions of the image's tag beyond those of `server`, the gitVersion of the API server.
 * False: one of both names no version, or they differ in the major one. */
bool scheduler_image_ahead(const char *image, const char *server, int *ret_ahead);

/* Whether Kubernetes supports that; if not, `ret` says what is wrong and what to do. */
bool scheduler_image_suits(const char *image, const char *server, int ahead, char *ret,
                           unsigned size);
