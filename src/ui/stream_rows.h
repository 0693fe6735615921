#pragma once
#include <cstdint>
#include <functional>
#include <string>

#include "io/held_folder.h"
#include "record/metrics.h"

namespace millrace::ui {

struct StreamPiece {
    std::uint64_t offset = 0;  ///< behind the last whole line: where to go on
    bool more = false;         ///< there were more than fit into one piece
    bool anew = false;         ///< the stream was cut back since: these are its first rows
};

/// Hands out whole lines behind byte `offset` of the file, at most 1 MiB of them; -1: the newest 16 MiB of it begin. Lines that
/// are no flat JSON object are left out, and so is what a page does not show: values of members and of single cores. A missing
/// file is an empty stream.
StreamPiece read_rows(const io::HeldFolder& folder, const std::string& name, std::int64_t offset,
                      const std::function<void(const record::MetricsRow&)>& take);

/// The same as JSON: {"offset", "more", "anew", "rows"}.
std::string stream_json(const io::HeldFolder& folder, const std::string& name, std::int64_t offset);

}  // namespace millrace::ui
