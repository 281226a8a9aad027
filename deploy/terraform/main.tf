# Asks the gate before anything is applied. The token is in COMPATGATE_TOKEN, not in the state.
data "external" "compatgate" {
  program = ["compatgate", "hook", "terraform", "--server", "http://127.0.0.1:8080"]

  query = {
    target = "prod-a100"
    stack  = "cuda=12.4,cudnn=9.1.0,torch=2.4.1+cu124"
    image  = "registry.example/team/trainer:1.4"
  }

  lifecycle {
    postcondition {
      condition     = self.result.decision == "allow"
      error_message = self.result.reason
    }
  }
}
