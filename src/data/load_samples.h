#pragma once
// Samples as a recipe asks for them: pictures, arrays, tables or IDX files, whichever lie at data.path.

#include "data/load.h"
#include "data/sample_request.h"

namespace millrace::data {

/// The keys of [data] that families of samples have.
void add_sample_keys(base::Schema& schema);
/// Adds data.validation and data.test.
void add_part_keys(base::Schema& schema, const std::string& of);

/// By what lies at request.path (data/forms.h).
Result<SampleSet> load_sample_set(const SampleRequest& request);

/// As load_data().
base::Result<LoadedData> load_samples(const base::Recipe& recipe, bool training, const StoredData& stored,
                                      const ChooseStream& choose);

}  // namespace millrace::data
