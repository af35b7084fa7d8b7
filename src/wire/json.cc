/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/json.h"

#include <cstring>
#include <new>
#include <string>
#include <type_traits>

#include <simdjson.h>

#include "base/buf.h"

using simdjson::dom::element;

/* A view is the library's element, which is two words and trivially copyable. */
static_assert(sizeof(struct json) == sizeof(element) && std::is_trivially_copyable<element>::value,
              "struct json must hold a simdjson element");

struct json_parser {
    simdjson::dom::parser parser;
    simdjson::padded_string input;
};

static element to_element(struct json v) {
    element e;
    std::memcpy(static_cast<void *>(&e), &v, sizeof(v));
    return e;
}

static struct json to_json(element e) {
    struct json v;
    std::memcpy(&v, &e, sizeof(v));
    return v;
}

static const struct json invalid = {nullptr, 0};

extern "C" struct json_parser *json_parser_new(void) {
    return new (std::nothrow) json_parser;
}

extern "C" struct json_parser *json_parser_free(struct json_parser *parser) {
    delete parser;
    return nullptr;
}

extern "C" int json_parse(struct json_parser *parser, const char *text, size_t len,
                          struct json *ret, struct err *err) {
    /* A fresh buffer each time costs a page fault per 4 KiB; keep the largest one. */
    if (parser->input.size() < len || parser->input.data() == nullptr) {
        parser->input = simdjson::padded_string(len + len / 2);
        if (parser->input.data() == nullptr)
            return err_set(err, ENOMEM, "out of memory for %zu bytes of JSON", len);
    }
    if (len > 0)
        std::memcpy(parser->input.data(), text, len);
    std::memset(parser->input.data() + len, 0, simdjson::SIMDJSON_PADDING);

    if (len > parser->parser.capacity() || parser->parser.max_depth() != JSON_DEPTH_MAX) {
        size_t room = len < 4096 ? 4096 : len + len / 2;
        if (parser->parser.allocate(room, JSON_DEPTH_MAX) != simdjson::SUCCESS)
            return err_set(err, ENOMEM, "out of memory for %zu bytes of JSON", len);
    }
    element root;
    auto error = parser->parser.parse(parser->input.data(), len, false).get(root);
    if (error)
        return err_set(err, error == simdjson::MEMALLOC ? ENOMEM : EBADMSG, "bad JSON: %s",
                       simdjson::error_message(error));
    *ret = to_json(root);
    return 0;
}

extern "C" int json_open(const char *text, size_t len, struct json_parser **ret_parser,
                         struct json *ret, struct err *err) {
    struct json_parser *parser = json_parser_new();
    if (!parser)
        return err_set(err, ENOMEM, "out of memory");
    int r = json_parse(parser, text, len, ret, err);
    if (r < 0)
        json_parser_free(parser);
    else
        *ret_parser = parser;
    return r;
}

extern "C" enum json_type json_type(struct json v) {
    if (!json_valid(v))
        return JSON_INVALID;
    switch (to_element(v).type()) {
    case simdjson::dom::element_type::NULL_VALUE:
        return JSON_NULL;
    case simdjson::dom::element_type::BOOL:
        return JSON_BOOL;
    case simdjson::dom::element_type::INT64:
    case simdjson::dom::element_type::UINT64:
    case simdjson::dom::element_type::DOUBLE:
        return JSON_NUMBER;
    case simdjson::dom::element_type::STRING:
        return JSON_STRING;
    case simdjson::dom::element_type::ARRAY:
        return JSON_ARRAY;
    case simdjson::dom::element_type::OBJECT:
        return JSON_OBJECT;
    }
    return JSON_INVALID;
}

extern "C" struct json json_get(struct json object, const char *key) {
    element found;
    if (json_type(object) != JSON_OBJECT || to_element(object).at_key(key).get(found))
        return invalid;
    return to_json(found);
}

extern "C" struct json json_get_nocase(struct json object, const char *key) {
    element found;
    if (json_type(object) != JSON_OBJECT ||
        to_element(object).at_key_case_insensitive(key).get(found))
        return invalid;
    return to_json(found);
}

extern "C" struct json json_path(struct json v, const char *const *keys) {
    for (; *keys && json_valid(v); keys++)
        v = json_get(v, *keys);
    return v;
}

static const char *c_string(const char *data, size_t len) {
    return std::memchr(data, '\0', len) ? nullptr : data;
}

extern "C" const char *json_string(struct json v) {
    const char *data;
    size_t len;
    if (!json_valid(v) || to_element(v).get_c_str().get(data) ||
        to_element(v).get_string_length().get(len))
        return nullptr;
    return c_string(data, len);
}

extern "C" const char *json_string_or(struct json v, const char *otherwise) {
    const char *text = json_string(v);
    return text ? text : otherwise;
}

extern "C" bool json_is_string(struct json v, const char *text) {
    const char *value = json_string(v);
    return value && text && std::strcmp(value, text) == 0;
}

template <typename T> static bool get_value(struct json v, T *ret) {
    T value;
    if (!json_valid(v) || to_element(v).get(value))
        return false;
    *ret = value;
    return true;
}

extern "C" bool json_u64(struct json v, uint64_t *ret) {
    return get_value(v, ret);
}

extern "C" bool json_i64(struct json v, int64_t *ret) {
    return get_value(v, ret);
}

extern "C" bool json_double(struct json v, double *ret) {
    return get_value(v, ret);
}

extern "C" bool json_bool(struct json v, bool *ret) {
    return get_value(v, ret);
}

extern "C" size_t json_size(struct json v) {
    switch (json_type(v)) {
    case JSON_ARRAY:
        return to_element(v).get_array().value_unsafe().size();
    case JSON_OBJECT:
        return to_element(v).get_object().value_unsafe().size();
    default:
        return 0;
    }
}

template <typename Iterator> static struct json pack(Iterator i) {
    static_assert(sizeof(Iterator) == sizeof(struct json), "an iterator must fit a view");
    struct json v;
    std::memcpy(&v, &i, sizeof(v));
    return v;
}

template <typename Iterator> static Iterator unpack(struct json v) {
    alignas(Iterator) unsigned char raw[sizeof(Iterator)];
    std::memcpy(raw, &v, sizeof(v));
    return *std::launder(reinterpret_cast<Iterator *>(raw));
}

extern "C" struct json_iter json_iter(struct json v) {
    switch (json_type(v)) {
    case JSON_ARRAY: {
        auto array = to_element(v).get_array().value_unsafe();
        return {pack(array.begin()), pack(array.end()), false};
    }
    case JSON_OBJECT: {
        auto object = to_element(v).get_object().value_unsafe();
        return {pack(object.begin()), pack(object.end()), true};
    }
    default:
        return {invalid, invalid, false};
    }
}

extern "C" bool json_next(struct json_iter *it, const char **ret_key, struct json *ret_value) {
    if (it->at.doc == it->end.doc && it->at.index == it->end.index)
        return false;
    if (ret_key)
        *ret_key = nullptr;
    if (it->object) {
        auto i = unpack<simdjson::dom::object::iterator>(it->at);
        if (ret_key)
            *ret_key = c_string(i.key_c_str(), i.key_length());
        *ret_value = to_json(i.value());
        it->at = pack(++i);
    } else {
        auto i = unpack<simdjson::dom::array::iterator>(it->at);
        *ret_value = to_json(*i);
        it->at = pack(++i);
    }
    return true;
}

extern "C" struct json json_find(struct json array, const char *key, const char *text) {
    struct json_iter it = json_iter(array);
    struct json item;
    while (!it.object && json_next(&it, nullptr, &item))
        if (json_is_string(json_get(item, key), text))
            return item;
    return invalid;
}

extern "C" bool json_has_string(struct json array, const char *text) {
    struct json_iter it = json_iter(array);
    struct json item;
    while (!it.object && json_next(&it, nullptr, &item))
        if (json_is_string(item, text))
            return true;
    return false;
}

extern "C" size_t json_next_texts(struct json_iter *it, struct json_text *ret, size_t max) {
    size_t n = 0;
    if (it->object || !json_valid(it->at))
        return 0;
    auto i = unpack<simdjson::dom::array::iterator>(it->at);
    auto end = unpack<simdjson::dom::array::iterator>(it->end);
    for (; n < max && i != end; ++i, n++) {
        std::string_view text;
        if ((*i).get_string().get(text) || !c_string(text.data(), text.size()))
            break;
        ret[n] = {text.data(), text.size()};
    }
    it->at = pack(i);
    return n;
}

extern "C" void json_print(struct buf *out, struct json v) {
    if (!json_valid(v))
        return;
    std::string text = simdjson::minify(to_element(v));
    buf_append(out, text.data(), text.size());
}
