/* SPDX-License-Identifier: Apache-2.0 */

/* Takes the place of the real driver library while a shadow library is linked, so that the shadow
 * needs a library of this name. Never installed. */

extern const char behind;
const char behind = 0;
