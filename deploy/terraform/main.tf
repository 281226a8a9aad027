# Asks the gate before anything is applied. The token is in COMPATGATE_TOKEN, not in the state. Name the
# gate's authority in SSL_CERT_FILE where it is not a public one (docs/how-to/deploy-webhooks.md, "TLS
# inside the cluster"). Outside of the cluster, server is the gate's public address.
variable "server" {
  type    = string
  default = "https://compatgate.compatgate.svc"
}

# Where it is to run: a target of the blessed matrix, or a pool.
variable "target" {
  type    = string
  default = "prod-a100"
}

variable "pool" { # driver=580.95.05,gpu=A100-SXM4-80GB; then target is ""
  type    = string
  default = ""
}

# What is to run: one or several; what is empty is left out.
variable "image" { # the gate reads it from its registry
  type    = string
  default = ""
}

variable "stack" {
  type    = string
  default = "cuda=12.4,cudnn=9.1.0,torch=2.4.1+cu124"
}

variable "lock" { # path of a lockfile
  type    = string
  default = ""
}

variable "sbom" { # path of a bill of materials, CycloneDX or SPDX
  type    = string
  default = ""
}

data "external" "compatgate" {
  program = ["compatgate", "hook", "terraform", "--server", var.server]

  query = {
    target = var.target
    pool   = var.pool
    image  = var.image
    stack  = var.stack
    lock   = var.lock
    sbom   = var.sbom
  }

  lifecycle {
    postcondition {
      condition     = self.result.decision == "allow"
      error_message = self.result.reason
    }
  }
}
