/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Puts an item in front of a list. `link`: the member of the item that is the next one. */
#define LIST_PUSH(head, item, link) ((void) ((item)->link = (head), (head) = (item)))
