/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/objects/scheduler_image.h"

#include <stdio.h>
#include <string.h>

#define OLDEST (-1) /* minor versions */

/* Major and minor version of "v1.33.5-eks-3025e55", with or without the v. */
static bool read_version(const char *text, unsigned *ret_major, unsigned *ret_minor) {
    return sscanf(text + (*text == 'v'), "%4u.%4u", ret_major, ret_minor) == 2;
}

/* Without what a provider appends. */
static int release_len(const char *version) {
    return (int) strcspn(version, "-+");
}

void image_tag(const char *image, char ret[static IMAGE_TAG_MAX]) {
    const char *name = strrchr(image, '/');
    name = name ? name + 1 : image;
    const char *colon = strchr(name, ':'), *digest = strchr(name, '@');
    ret[0] = '\0';
    if (colon && (!digest || colon < digest))
        (void) snprintf(ret, IMAGE_TAG_MAX, "%.*s", (int) strcspn(colon + 1, "@"), colon + 1);
}

bool scheduler_image_ahead(const char *image, const char *server, int *ret_ahead) {
    unsigned major, minor, server_major, server_minor;
    char tag[IMAGE_TAG_MAX];
    image_tag(image, tag);
    if (!read_version(tag, &major, &minor) || !read_version(server, &server_major, &server_minor) ||
        major != server_major)
        return false;
    *ret_ahead = (int) minor - (int) server_minor;
    return true;
}

bool scheduler_image_suits(const char *image, const char *server, int ahead, char *ret,
                           unsigned size) {
    char tag[IMAGE_TAG_MAX];
    if (ahead <= 0 && ahead >= OLDEST)
        return true;
    image_tag(image, tag);
    (void) snprintf(ret, size,
                    "kube-scheduler %s is %s the API server, %s, which Kubernetes does not "
                    "support: set the tag of its image to %.*s",
                    tag, ahead > 0 ? "newer than" : "more than one minor version older than",
                    server, release_len(server), server);
    return false;
}
