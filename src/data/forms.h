#pragma once
// What lies at a path: which reader takes it.

#include <span>

#include "data/data_set.h"
#include "data/folder.h"

namespace millrace::data {

enum class Form : std::uint8_t { unknown, idx, pictures, arrays, table, text, pairs, recordings };

struct FormWords {
    Form form = Form::unknown;
    DataKind kind = DataKind::samples;
    const char* holds = "";  ///< for people: "a table"
};

/// By names alone: the endings of a file, or what a folder holds.
Form form_of(const Path& path);
const FormWords& words_of(Form form);
std::span<const FormWords> forms();

/// A name without ".gz", in lower case; its ending.
std::string unpacked_ending(const Path& path);

}  // namespace millrace::data
