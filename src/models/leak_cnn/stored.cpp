#include "models/leak_cnn/stored.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/json.h"

namespace millrace::models {
namespace {

bool sound(const RecordingData& d) {
    bool fine = !d.classes.names.empty() && d.classes.positive >= 0 &&
                static_cast<std::size_t>(d.classes.positive) < d.classes.names.size() && !d.scaling.mean.empty() &&
                d.scaling.mean.size() == d.scaling.deviation.size();
    for (const std::int32_t count : d.classes.together) fine = fine && count > 0;
    for (const float value : d.scaling.mean) fine = fine && std::isfinite(value);
    for (const float value : d.scaling.deviation) fine = fine && std::isfinite(value) && value > 0;
    return fine;
}

}  // namespace

std::string encode(const RecordingData& data) {
    return base::json_text(nlohmann::ordered_json{{"classes", data.classes.names},
                                                  {"positive", data.classes.positive},
                                                  {"together", data.classes.together},
                                                  {"repeats", data.classes.repeats},
                                                  {"mean", data.scaling.mean},
                                                  {"deviation", data.scaling.deviation}});
}

base::Result<RecordingData> decode(const std::string& text, const std::string& place) {
    RecordingData data;
    try {
        const auto parsed = base::json_or_throw(text);
        parsed.at("classes").get_to(data.classes.names);
        parsed.at("positive").get_to(data.classes.positive);
        parsed.at("together").get_to(data.classes.together);
        data.classes.repeats = parsed.value("repeats", false);
        parsed.at("mean").get_to(data.scaling.mean);
        parsed.at("deviation").get_to(data.scaling.deviation);
    } catch (const nlohmann::json::exception& e) {
        return base::Error{fmt::format("no description of recordings: {}", e.what()), place};
    }
    if (!sound(data))
        return base::Error{
            "the description of recordings contradicts itself: one mean and one positive deviation per feature, and a "
            "positive class among the classes, would be right",
            place};
    return data;
}

base::Result<RecordingData> stored_recordings(const io::LoadedCheckpoint& checkpoint) {
    const io::SafetensorsFile& file = checkpoint.members.front().model;
    const io::TensorView* bytes = file.find(kRecordingData);
    if (bytes == nullptr || bytes->type != io::ElementType::kU8)
        return base::Error{fmt::format("tensor {} with the description of the recordings is missing", kRecordingData),
                           file.place()};
    MILLRACE_LET(text, file.read(*bytes));
    return decode(std::string(reinterpret_cast<const char*>(text.data()), text.size()),
                  fmt::format("{}: {}", file.place().string(), kRecordingData));
}

}  // namespace millrace::models
