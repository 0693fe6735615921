#pragma once
// What the fuzzer does with one input, and what an ordinary test does with each input of the corpus: the first byte says in which
// pieces the others are read as a trace. Pieces do not change what is read, and what is read keeps the promises of a timeline.

#include <string_view>

#include "diagnose/reading/kineto_reader.h"
#include "fuzz/timeline_check.h"

namespace millrace::fuzz {

inline base::Result<diagnose::Timeline> read_pieces(std::string_view text, std::size_t piece) {
    test::TextSource source(text, piece);
    diagnose::KinetoLimits limits;
    limits.records = 4096;
    return diagnose::read_kineto(source, "trace.json", {}, limits);
}

inline void read_kineto_bytes(std::string_view input) {
    if (input.empty()) return;
    const std::string_view text = input.substr(1);
    const std::size_t piece = static_cast<unsigned char>(input[0]) % 64 + 1 + text.size() / 64;
    const auto whole = read_pieces(text, std::size_t{1} << 20);
    const auto pieces = read_pieces(text, piece);
    MILLRACE_ASSERT(whole.ok() == pieces.ok(), "pieces change whether a trace can be read");
    if (!whole.ok()) {
        MILLRACE_ASSERT(whole.error().text() == pieces.error().text(), "pieces change an error");
        MILLRACE_ASSERT(whole.error().exit_status == 2 || whole.error().exit_status == 4, "an exit status that is none");
        return;
    }
    MILLRACE_ASSERT(whole->calls.size() == pieces->calls.size() && whole->work.size() == pieces->work.size() &&
                        whole->names == pieces->names && whole->stacks == pieces->stacks && whole->remarks == pieces->remarks,
                    "pieces change what is read");
    check_round_trip(*whole, check_timeline(*whole));
    check_diagnosis(*whole);
}

}  // namespace millrace::fuzz
