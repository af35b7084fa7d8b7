/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "cli/cluster/cards.h"
#include "place/place.h"

/* A card as placement sees it now. One that gives no shares, or none now, is not healthy. */
struct place_card card_place(const struct card *card);

/* The same card with nothing allocated, as one of a new node. */
struct place_card card_place_new(const struct card *card);
