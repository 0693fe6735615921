#pragma once
// What the sweep's page has beside other pages: its look, and a script that sorts the table and finds a trial in the pictures.

#include <string_view>

namespace millrace::sweep {

std::string_view page_look();
std::string_view page_script();
/// What the page's policy lets run: the hash of page_script(), in base 64. A test compares it.
std::string_view page_script_hash();

}  // namespace millrace::sweep
