#pragma once
// What a checkpoint says about the recordings: which classes there are, how many windows belong together, how features are
// scaled.

#include <string>

#include "data/fields.h"
#include "io/checkpoint.h"

namespace millrace::models {

inline constexpr const char* kRecordingData = "recording_data";  ///< the attachment, JSON

struct RecordingData {
    data::Classes classes;  ///< without counts
    data::Scaling scaling;
};

std::string encode(const RecordingData& data);
/// `place` names the text in errors.
base::Result<RecordingData> decode(const std::string& text, const std::string& place);
/// Of a checkpoint's first member.
base::Result<RecordingData> stored_recordings(const io::LoadedCheckpoint& checkpoint);

}  // namespace millrace::models
