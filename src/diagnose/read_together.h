#pragma once
// Lines that read many small results in one step (a norm of every parameter): computed and read together they need a few kernels
// instead of some for each value, and what kernels of a few microseconds take is mostly their beginning and their end.

#include "diagnose/cures.h"

namespace millrace::diagnose {

/// Fills Site::together: short jobs that the line launched between two of its reads, where at least policy.many_reads follow each
/// other within a step. Those before the first read of a step stand for all and are not among them. `roles`: [lane][act].
void find_together(const Study& study, const std::vector<std::vector<Role>>& roles, Site& site);

/// Leaves of each such job what it works: its launch, the pause before it and its latency go.
void compute_together(const Study& study, const Site& site, std::size_t lane, Model& model);

}  // namespace millrace::diagnose
