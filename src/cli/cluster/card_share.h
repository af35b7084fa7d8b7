/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

struct card;

/* Prints the card and which pods and claims share it, but the one with that UID. */
void card_print_sharing(const struct card *card, const char *uid);
