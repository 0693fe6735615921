#pragma once
// What the fuzzer does with one input, and what an ordinary test does with each input of the corpus: the input is a table, with
// commas and with tabs. Whatever its bytes are, whole rows or an error come out.

#include <string_view>

#include "io/table_file.h"

namespace millrace::fuzz {

inline void read_table_bytes(std::string_view bytes) {
    for (const char delimiter : {',', '\t'}) {
        const auto table = io::parse_table(std::string(bytes), delimiter, "table");
        if (!table.ok()) {
            MILLRACE_ASSERT(!table.error().message.empty() && table.error().place.starts_with("table"),
                            "an error without reason or place");
            continue;
        }
        MILLRACE_ASSERT(table->rows() > 0 && table->cells.size() == table->rows() * table->names.size(), "a row is not whole");
        std::size_t letters = 0;
        for (const std::string_view cell : table->cells) {
            letters += cell.size();
            MILLRACE_ASSERT(cell.empty() || (cell.data() >= table->text->data() &&
                                             cell.data() + cell.size() <= table->text->data() + table->text->size()),
                            "a cell outside of the text");
        }
        MILLRACE_ASSERT(letters <= bytes.size(), "more letters than were given");
    }
}

}  // namespace millrace::fuzz
