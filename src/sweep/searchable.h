#pragma once
// What a trial may choose of a recipe, and what all trials of a study have in common.

#include "base/recipe_schema.h"
#include "search/space.h"
#include "sweep/study_file.h"

namespace millrace::sweep {

/// Refuses, at the parameter's line: keys that the recipe does not know, keys that are not a trial's to choose (files, devices,
/// how long and where it runs), lists, and ranges or choices with a value that the key does not allow.
base::Status check_searchable(const search::Parameter& parameter, const base::Schema& schema);

/// Fills `searched` and makes the recipe that of one trial: one member, train.epochs the last rung, whole epochs.
base::Status fit_to_trials(StudyFile& study);

}  // namespace millrace::sweep
