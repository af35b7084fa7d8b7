/* SPDX-License-Identifier: Apache-2.0 */

/* Stands for the real driver library while a shadow library is linked, so that the shadow asks the
 * loader for it by this file's name. Never installed. */

extern const char behind;
const char behind = 0;
