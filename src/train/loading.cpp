#include "train/loading.h"

#include <fmt/format.h>

#include "base/units.h"
#include "data/load.h"
#include "train/memory_plan.h"

namespace millrace::train {

base::Result<Loading> choose_loading(const base::Recipe& recipe, data::DataKind kind, bool training,
                                     const data::StoredData& stored, const ops::Backend& backend) {
    const std::string& mode = recipe.text("data.mode");
    MILLRACE_LET(needed, data::streamable_bytes(recipe, kind, training));
    if (!needed) {
        if (mode != "stream") return Loading{};
        return recipe.bad("data.mode",
                          fmt::format("data.mode = \"stream\": {} are always resident; sets of recordings can be streamed",
                                      data::unit_of(kind)));
    }
    if (stored.streamed && mode != "auto" && *stored.streamed != (mode == "stream"))
        return recipe.bad("data.mode",
                          fmt::format("data.mode = \"{}\": the run was started with {} data, whose order is another; "
                                      "resume with the same or start a new run with --out",
                                      mode, *stored.streamed ? "streamed" : "resident"));
    if (mode != "auto") return Loading{mode == "stream", false, fmt::format("data.mode = \"{}\"", mode)};
    if (stored.streamed) return Loading{*stored.streamed, false, "as the run was started"};
    const std::string size = base::print_bytes(*needed);
    for (const auto& limit :
         {memory_limit(static_cast<std::int64_t>(recipe.bytes("train.memory")), backend), host_memory_limit()})
        if (limit && static_cast<std::int64_t>(*needed) > limit->bytes)
            return Loading{
                true, false,
                fmt::format("{}, and {} {}", size, limit->owner, base::print_bytes(static_cast<std::uint64_t>(limit->bytes)))};
    return Loading{false, true, fmt::format("{}, which fit", size)};
}

}  // namespace millrace::train
